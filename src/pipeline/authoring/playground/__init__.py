"""A local web page for trying out policies while typing. Spec: docs/spec/playground.md.

`state` is the content of the page, `project` loads and saves it, `evaluation` judges it, `server` serves the browser.
"""
