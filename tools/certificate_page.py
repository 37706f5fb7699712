"""docs/reference/certificate.md, made from the checks."""

from typing import Final

from lucius.dev.certificate.checks import CHECKS, GROUPS
from lucius.dev.certificate.checks.process import DRAIN_SECONDS
from lucius.dev.certificate.examinee import FILE, SLOW_SECONDS, Patience

_HEAD: Final = """# The certificate

`lucius certify` checks in less than a minute whether a platform service keeps the [contract](messages.md). It
starts a pull gateway of its own on loopback, because a real server would not send duplicates or lose a RESULT
on demand. It hands out directives and looks at replies and outputs, from outside: the service may be written
in any language.

```
lucius certify service:Shout                     # a service on the kit, as `lucius service run` takes it
lucius certify --command 'node worker.js' --service shout --step-type SHOUT
lucius certify --listen 8799 --service shout --step-type SHOUT   # a service that you start and point there
```

`--command` gets the address in `LUCIUS_URL`, and folders in `LUCIUS_WORKSPACE_URL`, `LUCIUS_INPUT_ROOTS` and
`LUCIUS_OUTPUT_ROOTS`. `--listen` prints them and waits; checks that must stop or kill the service are
skipped. So are all others, with the reason, while `work-succeeds` is broken.

`--check NAME` looks at one promise, `--list` prints all. `--json` prints a report, `--junit FILE` writes one
for a build server, `--folder DIR` keeps everything that was handed out and written. The exit code is 0 if no
promise is broken. A broken promise is printed with what was seen and what to do.

## What the service is fed

A text of one line and an empty payload, unless `{file}` in the current folder (or `--samples FILE`) says
more:

```yaml
input: sample.pdf              # the document, a file beside this one
payload: {{marks: 2}}            # a payload that works
previous: {{ocr: text.txt}}      # outputs of earlier steps, by step id
slow:                          # work that takes long; `seconds` is how long, at least ({slow:g} unless said)
  payload: {{pages: 500}}
  seconds: 8
poison: {{payload: {{marks: x}}}}  # what fails for good
retryable: {{payload: {{}}}}       # what fails and may be tried again
large: {{input: book.pdf}}       # what has a large output
outputs: false                 # the service leaves nothing in the workspace (`commit = False` says it too)
probe: [python, probe.py, "{{effect_key}}"]  # prints how often that effect was applied, without outputs
```

A case has the `input`, `payload` and `previous` of the sample that works, unless it names its own.
Without `slow`, a service on the kit is slowed down by [fault
injection](../how-to/write-a-service.md#break-it-on-purpose): then the kit waits, not your code. Name
work that really takes long if `execute()` computes. Work that ends sooner than `seconds` proves nothing:
its checks are skipped.

An ACK may take {ack:g} s, a RESULT {result:g} s. Slow work has a lease of six tenths of its time.
`LUCIUS_DRAIN_SECONDS` is {drain:g}.

## The {count} promises
"""


def certificate_page() -> str:
    pace = Patience()
    parts = [
        _HEAD.format(
            file=FILE,
            slow=SLOW_SECONDS,
            ack=pace.ack,
            result=pace.result,
            drain=DRAIN_SECONDS,
            count=len(CHECKS),
        )
    ]
    for group, title in GROUPS.items():
        rows = [f"| `{check.name}` | {check.promise} |" for check in CHECKS if check.group == group]
        parts.append("\n".join((f"### {title}\n", _COLUMNS, *rows, "")))
    return "\n".join(parts)


_COLUMNS: Final = "| check | promise |\n|---|---|"
