"""What a forward leaves in its module (a mask of its length, a longer table), to be taken back."""

import copy

import torch


class State:
    """What the objects of a module's tree hold: whatever a forward puts there can be taken back.
    Tensors that it writes to are not."""

    CONTAINERS = (dict, list, set)

    def __init__(self, module: torch.nn.Module):
        self.held = [(each, self._copy(each.__dict__)) for each in module.modules()]

    def _copy(self, attributes: dict) -> dict:
        kept = {}
        for name, value in attributes.items():
            kept[name] = (value, copy.copy(value) if type(value) in self.CONTAINERS else None)
        return kept

    def is_changed(self) -> bool:
        def differs(now, before) -> bool:
            value, content = before
            if now is not value or content is None:
                return now is not value
            if isinstance(value, dict):
                now, content = [*now.items()], [*content.items()]
                return len(now) != len(content) or any(
                    a is not c or b is not d for (a, b), (c, d) in zip(now, content)
                )
            return len(now) != len(content) or any(a is not b for a, b in zip(now, content))

        return any(
            module.__dict__.keys() != kept.keys()
            or any(differs(module.__dict__[name], before) for name, before in kept.items())
            for module, kept in self.held
        )

    def restore(self) -> None:
        for module, kept in self.held:
            module.__dict__.clear()
            for name, (value, content) in kept.items():
                if content is not None:
                    value.clear()
                    value.extend(content) if isinstance(value, list) else value.update(content)
                module.__dict__[name] = value
