"""Which first lines of a failure name the class of a fault. Read by the score alone: no diagnosis sees it."""

import re

ONLY_GRADIENTS = r"^([^:]*: )?(d[qkv](, )?)+( off|:)"
WORDS = {
    "merge": r"\bparts?\b|weigh|merge|lse is|hop 0 alone|rounding of",
    "backward": rf"{ONLY_GRADIENTS}|the backward|delta|dout|gradient|dk and dv",
    "returns": r"gradients? of keys|key gradients|in the backward|^(dk, dv|dk|dv)( off|:)|queries of rank",
    "heads": r"\bheads?\b",
    "scale": r"\bscale\b",
    "causal": r"causal|later|sees itself|see itself|token after|diagonal",
    "window": r"window",
    "documents": r"(?<!only in )document|\bids\b",
    "padding": r"padd",
    "dead": r"no key|dead|unseen|nobody|padded|fixes the value exactly",
    "vision": r"vision|image|video",
    "regions": r"region|slot|select",
    "state": r"batch [B-Z]|saved|checkpoint|reentrant|offload|refill|was modified|repeat|after timing|newest|cached",
    "caches": r"batch [B-Z]|cached|given again|refill|repeat|after timing",
    "rows": r"first row|\brows?\b",
    "ids": r"document|\bids?\b",
    "inputs": r"was modified|graph|no_grad|stride|memory|^d[qkv]: 0",
    "routing": r"\bhops?\b|keys of (rank|other|earlier|later)|rank's own keys|arriv|bytes|own rank|nobody else",
    "layout": r"layout|position|\border",
    "topology": r"\bgroup\b|refused|global rank|chunk|layout|other ranks",
    "protocol": r"shape|dtype|no tensor|NaN|disagree|: 0 \(|graph|left changed",
    "timed": r"after timing|repeat|checkpoint",
    "late": r"changed after",
    "layers": r"step \d|after timing|filler|changed after|again|graph",
    "paths": r"window|vision|image|scale|dimension|NaN|row|dk, dv",
    "sessions": r"batch [B-Z]|step [2-9]",
    "leaves": r"left changed",
    "modes": r"autocast|default|lowered|infer|step [2-9]|batch|together|rounding|precision",
    "selections": r"region|select|window|document|padd|scale|step|checkpoint",
    "variants": r"batch [B-Z]|row|head|dimension|scale|document",
    "numerics": r"rounding|denominator|flushed|precision|overflow|clip|NaN|bits",
    "size": r"last key|never sees|block|dimension|only in (tokens|head|batch row)|beyond|left out",
}


def names(said: str, group: str) -> bool:
    """Whether a first line names the class."""
    return re.search(WORDS[group], said, re.IGNORECASE) is not None
