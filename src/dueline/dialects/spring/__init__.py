"""The protocol of the Spring redis delay queue, service mode: clients POST jobs, we call an application's instance."""

from .courier import SpringCourier
from .dialect import SpringDialect
from .groups import COURIER
from .options import Services, SpringOptions

__all__ = ["COURIER", "Services", "SpringCourier", "SpringDialect", "SpringOptions"]
