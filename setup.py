"""Ship the top level's playbooks and inventories inside the package; all else stands in pyproject.toml."""

from setuptools import find_packages, setup

SHIPPED = ("playbooks", "inventories")

setup(
    packages=[*find_packages(include=["k3env", "k3env.*"]), *(f"k3env._shipped.{name}" for name in SHIPPED)],
    package_dir={f"k3env._shipped.{name}": name for name in SHIPPED},
    include_package_data=False,
    package_data={
        "k3env": ["py.typed", "reports/schema/*.json", "sandbox/miniature/**/*", "sandbox/standins/*"],
        **{f"k3env._shipped.{name}": ["*.yml"] for name in SHIPPED},
    },
)
