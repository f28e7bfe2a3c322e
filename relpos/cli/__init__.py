"""The command line `relpos`: one file per subcommand, put together in `relpos.cli.app`."""

__all__: list[str] = []
