"""Shared fixtures: the tiers of this CPU, and hypothesis without deadlines (the machines are shared)."""
import os

import hypothesis
import pytest

import qkernels

hypothesis.settings.register_profile("default", deadline=None, max_examples=60, print_blob=True,
                                     suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture])
hypothesis.settings.register_profile("thorough", parent=hypothesis.settings.get_profile("default"), max_examples=1000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))


@pytest.fixture(params=qkernels.available_isa())
def tier(request):
    """The test runs once on every tier that the CPU has."""
    with qkernels.use_isa(request.param):
        yield request.param
