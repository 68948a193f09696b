"""The settings of a gateway, from `cmf.yaml` and the environment."""
