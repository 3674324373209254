"""The application config, through which Django finds the management command."""

from __future__ import annotations

from django.apps import AppConfig


class DuelineConfig(AppConfig):
    """`"dueline.integrations.django"` in INSTALLED_APPS."""

    name = "dueline.integrations.django"
    label = "dueline"
    verbose_name = "Dueline"
