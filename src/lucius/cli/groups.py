"""Groups that list when no command is given: `lucius jobs` is `lucius jobs list`."""

import click
from click.shell_completion import CompletionItem


class ListByDefault(click.Group):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if ctx.resilient_parsing and not args:  # the shell asks what may come next
            return super().parse_args(ctx, args)
        named = bool(args) and (args[0] in self.commands or args[0] in ctx.help_option_names)
        return super().parse_args(ctx, args if named else ["list", *args])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Its commands, and the options of the list."""
        listed = self.commands["list"]
        below = click.Context(listed, parent=ctx, info_name="list", resilient_parsing=True)
        options = listed.shell_complete(below, incomplete) if incomplete.startswith("-") else []
        return super().shell_complete(ctx, incomplete) + options
