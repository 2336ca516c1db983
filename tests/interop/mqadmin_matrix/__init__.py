"""The table of mqadmin's cases: each is run by Apache's tool and by ours, at our servers and at Apache's.

`case`: a case, and the facts of its output; `<family>_cases`: the cases, one module for each family of commands;
`columns`: the tools and servers; `page`: docs/mqadmin.md.
"""
