"""A plain `pytest` in the checkout collects the catalogue against `ring`; an installed plugin is not loaded twice."""

pytest_plugins = ["ringcheck.pytest_plugin"]
