"""State machines: declared states, transitions by event, one place per subject, kept in the log.

::

    order = StateMachine(
        "order",
        states=["new", "paid", "shipped", "cancelled"],
        initial="new",
        transitions=[
            Transition("new", "paid", on="order.paid", guard="data.amount > 0"),
            Transition("paid", "shipped", on="order.shipped"),
            Transition(["new", "paid"], "cancelled", on="order.cancelled"),
        ],
    )
    order.apply(event).after        # "paid"
    order.state("order-17")         # "paid"

An event moves its subject once, however often it is applied: a retried or cleared task gets the same answer
again. An event for which there is no transition is refused, with the reason, and moves nothing; when it is
redriven or replayed later, it is looked at anew.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from windsock.events import Event, WindsockError
from windsock.log import Log
from windsock.log.subjects import Move, Standing, identity
from windsock.pipeline.expressions import Evaluate, Failure, compile_condition, compile_text
from windsock.sourcing.base import OnLog, as_event
from windsock.spec import SpecError
from windsock.values import describe

__all__ = ["ANY", "IllegalTransition", "StateMachine", "Transition"]

ANY = "*"
"""As the state before: every state."""

Guard = str | Callable[[Event], object]


class IllegalTransition(WindsockError):
    """An event has no transition from the state that its subject is in."""


@dataclass(frozen=True)
class Transition:
    """From one state, or several, to another.

    :param before: the state or states that it leaves, ``"*"`` for every one
    :param after: the state that it leads to
    :param on: the event type or types that cause it; ``*`` and ``?`` are wildcards
    :param when: a CEL expression over the event, beside or instead of ``on``
    :param guard: must be true as well: CEL, ``package.module:function``, or a function of the event. It may
        be asked more than once, so it only looks
    """

    before: str | Sequence[str]
    after: str
    on: str | Sequence[str] = ()
    when: str | None = None
    guard: Guard | None = None


@dataclass(frozen=True)
class _Rule:
    """A transition, compiled."""

    before: frozenset[str]
    after: str
    matches: Callable[[str], object] | None
    when: Evaluate | None
    guard: Evaluate | None
    said: str

    def fits(self, event: Event) -> bool:
        """Whether the event is one that causes it."""
        if self.matches is not None and not self.matches(event.type):
            return False
        return self.when is None or self.when(event) is True


class StateMachine(OnLog):
    """A machine with a current state for every subject.

    :param name: under which the states are kept
    :param states: every state that there is
    :param initial: where a subject is before its first event
    :param transitions: tried in their order; the first one that fits and whose guard is true is taken
    :param subject: CEL expression of the subject; by default the event's subject, else its key
    :param ignore: event types that never move anything and are no mistake either
    :param renamed: states that were called otherwise when they were stored, old name → new name
    :param log: the log that keeps it
    """

    def __init__(
        self,
        name: str,
        *,
        states: Sequence[str],
        initial: str,
        transitions: Sequence[Transition],
        subject: str | None = None,
        ignore: Sequence[str] = (),
        renamed: Mapping[str, str] | None = None,
        log: Log | None = None,
    ) -> None:
        super().__init__(name, log)
        self.states = tuple(states)
        self.initial = initial
        self._renamed = dict(renamed or {})
        self._ignored = _types(ignore)
        self._subject = None if subject is None else self._compiled(compile_text, subject, "subject")
        for state in (initial, *self._renamed.values()):
            self._declared(state, "it names")
        self._rules = [self._rule(number, one) for number, one in enumerate(transitions, 1)]

    def _declared(self, state: str, where: str) -> str:
        if state not in self.states:
            raise SpecError(
                f"state machine {self.name!r}: {where} the state {state!r}, which is none of "
                f"{', '.join(self.states)}"
            )
        return state

    def _rule(self, number: int, transition: Transition) -> _Rule:
        where = f"transition {number}"
        if not transition.on and transition.when is None:
            raise SpecError(f"state machine {self.name!r}: {where} needs `on` (event types) or `when` (CEL)")
        before = (transition.before,) if isinstance(transition.before, str) else tuple(transition.before)
        for state in before:
            if state != ANY:
                self._declared(state, f"{where} leaves")
        return _Rule(
            before=frozenset(self.states if ANY in before else before),
            after=self._declared(transition.after, f"{where} leads to"),
            matches=_types(transition.on),
            when=self._condition(transition.when, f"{where}, when"),
            guard=self._condition(transition.guard, f"{where}, guard"),
            said=getattr(transition.guard, "__name__", str(transition.guard)),
        )

    def _condition(self, condition: Guard | None, option: str) -> Evaluate | None:
        if condition is None:
            return None
        if isinstance(condition, str):
            return self._compiled(compile_condition, condition, option)
        return _guarded(condition)

    def _compiled(self, compiler: Callable[..., Evaluate], expression: str, option: str) -> Evaluate:
        try:
            return compiler(expression, watcher=self.name, option=option)
        except SpecError as error:
            text = str(error).replace(f"watcher {self.name!r}", f"state machine {self.name!r}", 1)
            raise SpecError(text) from error

    def apply(self, event: Event | Mapping[str, Any]) -> Move:
        """Move the event's subject, once; the same event again gets the same answer (``repeated``).

        What is refused goes to :meth:`refused`.
        """
        event = as_event(event)
        subject = self._subject_of(event)
        delivery = event.replay or ""
        if self._ignored is not None and self._ignored(event.type):
            state = self._current(self._standing(subject))
            return msgspec.structs.replace(self._move(event, subject, state), after=state)
        while True:
            earlier = self.log.moves(machine=self.name, event=identity(event), limit=1)
            if earlier and (earlier[0].after is not None or earlier[0].delivery == delivery):
                move: Move | None = earlier[0]
            else:
                standing = self._standing(subject)
                decided = self._decide(event, subject, self._current(standing))
                move = self.log.put_move(decided, expected=standing.moves if standing else 0)
            if move is not None:
                break
        if move.after is None:
            self.refused(event, move)
        return move

    def refused(self, event: Event, move: Move) -> None:
        """What becomes of an event that is refused; here it is an error."""
        raise IllegalTransition(move.reason)

    def state(self, subject: str) -> str:
        """The state that a subject is in."""
        return self._current(self._standing(subject))

    def subjects(self, state: str | None = None, *, after: str = "", limit: int = 100) -> list[Standing]:
        """Subjects that ever moved, all or those in one state, by name."""
        return self.log.standings(self.name, state=state, after=after, limit=limit)

    def history(self, subject: str, *, limit: int = 1000) -> list[Move]:
        """How a subject came to its state, oldest first, with the events that were refused."""
        moves = self.log.moves(machine=self.name, subject=subject, limit=limit)
        return [msgspec.structs.replace(move, repeated=False) for move in reversed(moves)]

    def _standing(self, subject: str) -> Standing | None:
        return self.log.standing(self.name, subject) if subject else None

    def _subject_of(self, event: Event) -> str:
        if self._subject is None:
            return event.subject or event.key or ""
        value = self._subject(event)
        return "" if isinstance(value, Failure) else str(value)

    def _current(self, standing: Standing | None) -> str:
        if standing is None:
            return self.initial
        state = self._renamed.get(standing.state, standing.state)
        if state not in self.states:
            raise WindsockError(
                f"state machine {self.name!r} has {standing.subject!r} in the state {state!r}, which it does "
                f"not declare any more: declare it again, or say renamed={{{state!r}: …}}"
            )
        return state

    def _move(self, event: Event, subject: str, state: str) -> Move:
        """An event that has not moved its subject yet."""
        return Move(
            machine=self.name,
            subject=subject,
            event=identity(event),
            event_id=event.id,
            event_type=event.type,
            seq=event.seq,
            delivery=event.replay or "",
            before=state,
            after=None,
        )

    def _decide(self, event: Event, subject: str, state: str) -> Move:
        move = self._move(event, subject, state)
        if not subject:
            return msgspec.structs.replace(move, reason=f"event {event.id!r} names no subject to move")
        closed = []
        for rule in self._rules:
            if state in rule.before and rule.fits(event):
                verdict = True if rule.guard is None else rule.guard(event)
                if verdict is True:
                    return msgspec.structs.replace(move, after=rule.after)
                why = f" ({verdict.reason})" if isinstance(verdict, Failure) else ""
                closed.append(f"{rule.said} is not true{why}")
        reason = f"{subject!r} is {state!r}, from where {event.type!r} leads nowhere"
        if closed:
            reason += f": {'; '.join(closed)}"
        return msgspec.structs.replace(move, reason=reason)


def _types(types: str | Sequence[str]) -> Callable[[str], object] | None:
    patterns = (types,) if isinstance(types, str) else tuple(types)
    return re.compile("|".join(map(fnmatch.translate, patterns))).fullmatch if patterns else None


def _guarded(function: Callable[[Event], object]) -> Evaluate:
    def evaluate(event: Event) -> Any:
        try:
            return bool(function(event))
        except Exception as error:  # noqa: BLE001 - the user's code; it refuses this event alone
            return Failure(describe(error))

    return evaluate
