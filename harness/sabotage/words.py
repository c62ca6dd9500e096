"""Which first lines of a failure name the class of a fault. Read by the score alone: no diagnosis sees it."""

import re

WORDS = {
    "merge": r"lse|merge|weights|partial|part\b|hop",
    "backward": r"dout|delta|gradient|backward|\bd[qkv]\b",
    "returns": r"gradient|owner|\bdk\b|\bdv\b|twice|home",
    "heads": r"head",
    "scale": r"scale",
    "causal": r"causal|later key|diagonal|A1",
    "window": r"window",
    "documents": r"document",
    "padding": r"pad",
    "dead": r"dead|no key|see nothing|sees no key|nobody|unseen|exactly",
    "vision": r"vision|image|group",
    "regions": r"region|select",
    "state": r"batch|step|refill|was modified|repeat|recompute|checkpoint",
    "inputs": r"was modified|graph|no_grad|stride|memory|gradient|\bd[qkv]\b",
    "routing": r"rank|hop|shard|own keys|arriv|bytes|message",
    "layout": r"layout|position|shard|order|rank",
    "topology": r"group|rank|refuse|chunk",
    "protocol": r"shape|dtype|tensor|NaN|refuse|layout|graph|zero|\b0\b|gradient|\bd[qkv]\b",
    "timed": r"timed|repeat|step|second|stale|earlier|times the truth",
    "numerics": r"round|precision|bf16|fp16|fp32|budget|overflow|NaN|clip",
    "size": r"token|dim|head|block|row|beyond|only in",
}


def names(said: str, group: str) -> bool:
    """Whether a first line names the class."""
    return re.search(WORDS[group], said, re.IGNORECASE) is not None
