"""All injected faults, in the order of their rooms."""

from tests.insight import faults_after, faults_around, faults_of_jobs, faults_of_services
from tests.insight.injecting import FAULTS, InjectedFault

ROOMS = (faults_of_services, faults_of_jobs, faults_around, faults_after)
__all__ = ["FAULTS", "ROOMS", "InjectedFault"]
