"""Groups that list when no command is given: `lucius jobs` is `lucius jobs list`."""

import click


class ListByDefault(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])
