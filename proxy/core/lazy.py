"""Values that take long to compute: computed when they are first read, or remembered for a while."""

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Generic, TypeVar, overload

T = TypeVar("T")


def cached_for_short_texts(
    most: int, longest: int = 1_000
) -> Callable[[Callable[[str], T]], Callable[[str], T]]:
    """Cache a function of a text for the last ``most`` texts that have at most ``longest`` characters.

    A plain :func:`functools.lru_cache` keeps texts of any length, beyond any ceiling on memory.
    """

    def decorate(compute: Callable[[str], T]) -> Callable[[str], T]:
        cached = lru_cache(most)(compute)

        @wraps(compute)
        def computed(text: str) -> T:
            return (cached if len(text) <= longest else compute)(text)

        return computed

    return decorate


class lazy(Generic[T]):  # noqa: N801 - a decorator is written in lower case
    """Like :class:`functools.cached_property`, without a lock.

    Up to Python 3.11 that has one lock for all instances of a class, which is held while a value is computed:
    a long conversation that is read in a thread would stop the event loop at a short one. Threads that read
    the same instance may both compute the value, which has to be the same. What is computed at once needs
    none of this.
    """

    def __init__(self, compute: Callable[[Any], T]) -> None:
        self._compute = compute
        self.__doc__ = compute.__doc__

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    @overload
    def __get__(self, instance: None, owner: type[Any]) -> "lazy[T]": ...

    @overload
    def __get__(self, instance: object, owner: type[Any] | None = None) -> T: ...

    def __get__(self, instance: object | None, owner: type[Any] | None = None) -> "lazy[T] | T":
        if instance is None:
            return self
        # Without a setter, what is in the instance's dict is read before this is asked again.
        value = instance.__dict__[self._name] = self._compute(instance)
        return value
