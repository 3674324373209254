"""The protocol of the Spring redis delay queue, service mode: jobs come by POST and go to an application's instance."""

from .dialect import SpringDialect
from .options import ServiceInstance, Services, SpringOptions

__all__ = ["ServiceInstance", "Services", "SpringDialect", "SpringOptions"]
