"""The verdict on all answers of a trial, compared by its ranks side by side: none idles while another one compares."""

from dataclasses import replace

from torch import Tensor

from harness.attempt import Answer
from harness.compare import Verdict, compare, compare_numbers, worse
from harness.ranks import Ranks, Tensors


def side_by_side(answers: list[Answer], layout: list[Tensor], ranks: Ranks) -> dict[int, Verdict]:
    """What `compare_numbers` says of answers, by their number, on rank 0; every rank takes part. Rank r compares number
    r, r + size and so on. Only passes count: anything else rank 0 compares again itself, as it has to explain it."""
    if ranks.group.size == 1 or len(answers) == 1:
        return {}
    tensors = _dealt(answers, ranks)
    found = {number: _compared(replace(answers[number], tensors=own), layout) for number, own in tensors.items()}
    every = ranks.all_gather({number: own for number, own in found.items() if own and own.name == "PASS"})
    return {number: verdict for part in every for number, verdict in part.items()}


def judge(answers: list[Answer], layout: list[Tensor], found: dict[int, Verdict]) -> tuple[Verdict, Answer]:
    """The verdict on all answers, and the one that decides it: the first that is not right, of right ones the one that
    is nearest to its budget. `found` is what is known of their numbers already."""
    verdict, decides, most = None, answers[0], -1.0
    for number, answer in enumerate(answers):
        own = compare(answer, answer.problem, layout, found.get(number))
        verdict = own if verdict is None else worse(verdict, own)
        if verdict.name != "PASS":
            if answer.what:
                verdict.reason = f"{answer.requirement}: {answer.what}: {verdict.reason}"
            return verdict, answer
        if own.nearest and own.nearest.ratio > most:
            decides, most = answer, own.nearest.ratio
    return verdict, decides


def _dealt(answers: list[Answer], ranks: Ranks) -> dict[int, Tensors]:
    """The tensors that this rank compares, by the number of their answer; those of broken promises stay out."""
    rank, size = ranks.group.rank, ranks.group.size
    whole = {number: answer.tensors for number, answer in enumerate(answers) if not answer.breaches}
    parts = [{f"{number} {name}": x for number, own in whole.items() for name, x in own.items()
              if number % size == other} for other in range(1, size)]
    dealt = ranks.deal_tensors([{}, *parts] if rank == 0 else None)
    if rank == 0:
        return {number: own for number, own in whole.items() if number % size == 0}
    mine: dict[int, Tensors] = {}
    for key, x in dealt.items():
        number, name = key.split()
        mine.setdefault(int(number), {})[name] = x
    return mine


def _compared(answer: Answer, layout: list[Tensor]) -> Verdict | None:
    """Nothing where it cannot be told: rank 0 then meets the same and raises it."""
    try:
        return compare_numbers(answer, answer.problem, layout)
    except ValueError:
        return None
