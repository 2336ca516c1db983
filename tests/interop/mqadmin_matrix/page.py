"""The text of docs/mqadmin.md: the table of cases with the outcome of each column."""

from collections.abc import Mapping

from tests.interop.mqadmin_matrix.case import PLACEHOLDERS, Case, Outcome
from tests.interop.mqadmin_matrix.columns import Table

HEAD = """# mqadmin

`mqadmin` (also `pocketmq admin`) is RocketMQ's admin tool in Python: the sub-commands of Apache's 4.9.4 and those of 5.x
whose requests PocketMQ serves, with Apache's flags, columns and exit codes. It works at PocketMQ's servers and at Apache's.
`mqadmin help` lists the sub-commands, `mqadmin help COMMAND` shows the options of one.

- Name servers are given by `-n` or by the variable `NAMESRV_ADDR`; without both it is 127.0.0.1:9876.
- `--json` prints one JSON document instead of text. A failure is then `{"error": {"code": ..., "message": ...}}` with exit
  code 1.
- Without `--json` exit codes are Apache's: 0, also if a server refuses (the refusal is on standard error), and 1 for wrong
  options.
- On a terminal lists are drawn as tables; in a pipe they have Apache's layout.
- Requests are signed with `--credentials FILE`, or with `$ROCKETMQ_HOME/conf/tools.yml` if it exists; `--tls FILE` uses TLS.
- Shell completion: `eval "$(_MQADMIN_COMPLETE=bash_source mqadmin)"`, also `zsh_source` and `fish_source`.
- Where Apache's tool goes on after a cluster that does not exist, ours stops. `deleteTopic` asks masters only, as in 5.x.
- `cloneGroupOffset` copies the offsets of the given topic only; Apache's copies those of all topics of the group.
- `sendMessage -b` without `-i` sends to any queue of that broker; Apache's ignores `-b` then.
- `clusterRT` ends after `--rounds N`.

## Cases

Each case was run by Apache's tool 4.9.4 at PocketMQ, by ours at PocketMQ, and by ours at Apache 4.9.4, each at servers of
its own, in this order. The number is the exit code. Where nothing else is said, all three showed the same. BROKER, NAMESRV,
CLUSTER, NAME and FOLDER stand for addresses, names and a folder, CLIENT, UNIQUE_KEY, OFFSET_ID and BAD_ID for ids, `..` for
figures. `usage` stands for the options of the command, `unknown cluster`, `connect failed` and `unknown command` for texts
that differ between the tools. The test that made this page (tests/interop/test_mqadmin_matrix.py) fails if it is no longer
what happens.

"""


AUTH_HEAD = """
## Cases of 5.x

The same with tool and servers of Apache 5.5.0. The brokers have `authenticationEnabled=true` and `authorizationEnabled=true`
([security.md](security.md)), and the tools sign as a Super user. An entry without addresses has `[]` at PocketMQ, `null` at
Apache.

"""


def page(families: Mapping[str, list[Case]], table: Table, auth: Mapping[str, list[Case]], auth_table: Table) -> str:
    """Return the text of the page."""
    return HEAD + _tables(families, table) + AUTH_HEAD + _tables(auth, auth_table)


def _tables(families: Mapping[str, list[Case]], table: Table) -> str:
    rows = list(zip(table.apaches_tool, table.ours, table.ours_at_apache, strict=True))
    text = ""
    number = 0
    for family, cases in families.items():
        text += f"### {family[0].upper()}{family[1:]}\n\n| case | shows | Apache's tool | ours | ours at Apache |\n"
        text += "|---|---|---|---|---|\n"
        for case in cases:
            text += _row(case, rows[number])
            number += 1
        text += "\n"
    return text.rstrip("\n") + "\n"


def _row(case: Case, outcomes: tuple[Outcome, Outcome, Outcome]) -> str:
    apaches, ours, at_apache = outcomes
    line = case.line.format(**{name: name.upper() for name in PLACEHOLDERS})
    other = str(at_apache.exit_code)
    if case.at_apache is not None:
        other += f": {_code(at_apache.shown(case.at_apache))} ({case.why})"
    unsigned = "" if case.signed else " (not signed)"
    cells = (
        f"`{_escaped(line)}`{unsigned}",
        _code(apaches.shown(case.shows)),
        str(apaches.exit_code),
        str(ours.exit_code),
        other,
    )
    return f"| {' | '.join(cells)} |\n"


def _code(texts: list[str]) -> str:
    return "<br>".join(f"`{_escaped(text)}`" for text in texts)


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("`", "'")
