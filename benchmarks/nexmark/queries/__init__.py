"""The queries of NEXMark, by their names. q10 only writes files, and is left out, as are q21 and q22, which need no
state and no join."""

from __future__ import annotations

from benchmarks.nexmark.queries.averages import Q4, Q6
from benchmarks.nexmark.queries.closing import Q9
from benchmarks.nexmark.queries.counts import Q11, Q12
from benchmarks.nexmark.queries.joins import Q3, Q20
from benchmarks.nexmark.queries.latest import Q18, Q19
from benchmarks.nexmark.queries.q5 import Q5
from benchmarks.nexmark.queries.q7 import Q7
from benchmarks.nexmark.queries.q8 import Q8
from benchmarks.nexmark.queries.query import Query
from benchmarks.nexmark.queries.side_input import Q13
from benchmarks.nexmark.queries.stateless import Q0, Q1, Q2, Q14
from benchmarks.nexmark.queries.statistics import Q15, Q16, Q17

QUERIES: dict[str, Query] = {
    query.name: query
    for query in (
        Q0(), Q1(), Q2(), Q3(), Q4(), Q5(), Q6(), Q7(), Q8(), Q9(), Q11(), Q12(), Q13(), Q14(), Q15(), Q16(), Q17(),
        Q18(), Q19(), Q20(),
    )
}  # fmt: skip
