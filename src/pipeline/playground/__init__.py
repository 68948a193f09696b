"""A local web page on which policy is tried out while it is typed. Spec: docs/spec/playground.md.

`state` is what the page holds and where it is read from and kept; `evaluation` judges it; `server` answers the browser.
"""
