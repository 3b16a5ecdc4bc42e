"""Keep the rules of a session in its row, which the caller saves (D68)."""

import json
import uuid
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bridge_project.kernel import limits
from bridge_project.protocol.resources import RuleUse, SessionRule
from bridge_project.protocol.types import now_text
from devices_app.models import Device
from sessions_app.approvals.rules.matching import EXACT, Judgement
from sessions_app.models import Session, ToolCall

Rule = dict[str, Any]  # SessionRule's fields; ``kind``, ``digest`` and ``device_pk`` for the bridge


def of(session: Any) -> list[Rule]:
    """Return the rules of a session (model or row of COLUMNS), oldest first."""
    found: list[Rule] = json.loads(session.rules or "[]")
    return found


def shown(session: Any) -> list[SessionRule]:
    """Return the rules as devices are shown them."""
    return [SessionRule(**use_of(one).wire(), used=one["used"]) for one in of(session)]


def use_of(rule: Any) -> RuleUse:
    return RuleUse(**{name: rule[name] for name in RuleUse.model_fields})


def covering(session: Session, judgement: Judgement) -> Rule | None:
    """Return a rule that covers a call, None if it asks.

    A command that does things of several kinds needs a rule for each: the newest is named.
    """
    known = of(session)
    same = [one for one in known if judgement.digest and one["digest"] == judgement.digest]
    kinds = {one["kind"]: one for one in known}
    if same or not judgement.kinds or not judgement.kinds <= kinds.keys():
        return same[-1] if same else None
    return max((kinds[kind] for kind in judgement.kinds), key=lambda one: str(one["since"]))


def keep(
    session: Session, offer: Mapping[str, Any], call: ToolCall, device: Device, now: datetime
) -> None:
    """Keep a rule that was offered with a call; the oldest beyond RULES goes."""
    kind = offer["id"]
    digest = call.exact if kind == EXACT else ""
    others = [one for one in of(session) if (one["kind"], one["digest"]) != (kind, digest)]
    rule: Rule = {
        "id": str(uuid.uuid4()),
        "label": offer["label"],
        "device": device.name,
        "used": 0,
    }
    rule |= {"since": now_text(now), "kind": kind, "digest": digest, "device_pk": device.pk}
    session.rules = json.dumps([*others, rule][-limits.RULES :])


def count(session: Session, rule: Rule) -> None:
    """Count a call that a rule has approved."""
    known = of(session)
    for one in known:
        one["used"] += one["id"] == rule["id"]
    session.rules = json.dumps(known)


def remove(session: Session, rule_id: str) -> str | None:
    """Remove a rule and return its label, None if there is no such rule."""
    known = of(session)
    found = next((one for one in known if one["id"] == rule_id), None)
    if found is None:
        return None
    kept = [one for one in known if one is not found]
    session.rules = json.dumps(kept) if kept else ""
    return str(found["label"])


def remove_of(device_pk: int) -> None:
    """Remove the rules of a device, in the caller's transaction."""
    for session in Session.objects.exclude(rules=""):
        kept = [one for one in of(session) if one["device_pk"] != device_pk]
        session.rules = json.dumps(kept) if kept else ""
        session.save(update_fields=["rules"])
