"""Collects the catalogue against `ring` with a plain `pytest` in the checkout; an installed plugin is not loaded twice."""

pytest_plugins = ["ringcheck.pytest_plugin"]
