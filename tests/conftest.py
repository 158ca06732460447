"""Shared fixtures: the tiers of this CPU, and hypothesis without deadlines (the machines are shared)."""
import os
import signal

import hypothesis
import pytest

import qkernels

hypothesis.settings.register_profile("default", deadline=None, max_examples=60, print_blob=True,
                                     suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture])
hypothesis.settings.register_profile("thorough", parent=hypothesis.settings.get_profile("default"), max_examples=1000)
# continuous integration repeats the same examples, so that a red run is about the change; every other run draws new ones
hypothesis.settings.register_profile("ci", parent=hypothesis.settings.get_profile("default"), derandomize=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or ("ci" if os.environ.get("CI") else "default"))

# a shell's background job ignores interrupts, and so would the programs that it starts: those of the tests are to heed them
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(params=qkernels.available_isa())
def tier(request):
    """The test runs once on every tier that the CPU has."""
    with qkernels.use_isa(request.param):
        yield request.param
