"""The public names of attnviz.corpus besides those of attnviz itself."""

from .edges import Edge as Edge
from .on_ray import RayEngine as RayEngine
from .roles import Role as Role
from .roles import Roles as Roles
from .statistics import StackStatistics as StackStatistics

__all__: list[str]
