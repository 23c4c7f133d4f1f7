"""Starts graphite-web 1.1.10 inside the scripts that record its answers: crates/*/tests/record*.py."""

import logging
import os
import sys
import types
import warnings


def start(folder=None, **settings):
    """Sets Django up with graphite's settings, data in `folder`, and its database too; in memory without a folder."""
    module = types.ModuleType("recorder_settings")
    database = os.path.join(folder, "graphite.db") if folder else ":memory:"
    whisper = os.path.join(folder, "whisper") if folder else "/tmp"
    defaults = {
        "SECRET_KEY": "recorder",
        "TIME_ZONE": "UTC",
        "DATABASES": {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": database}},
        "WHISPER_DIR": whisper,
        "STANDARD_DIRS": [whisper],
        "CARBONLINK_HOSTS": [],
        "ALLOWED_HOSTS": ["*"],
        "LOG_ROTATION": False,
    }
    if not folder:
        logs = ["INFO", "EXCEPTION", "CACHE", "RENDERING"]
        defaults |= {f"LOG_FILE_{log}": "-" for log in logs}
    for name in ["LOG_DIR", "GRAPHITE_ROOT", "STORAGE_DIR", "CONF_DIR"]:
        defaults[name] = folder or "/tmp"
    for name, value in (defaults | settings).items():
        setattr(module, name, value)
    sys.modules["recorder_settings"] = module
    os.environ["DJANGO_SETTINGS_MODULE"] = "graphite.settings"
    os.environ["GRAPHITE_SETTINGS_MODULE"] = "recorder_settings"
    warnings.filterwarnings("ignore")
    logging.disable(logging.CRITICAL)
    import django

    django.setup()
    if folder:
        os.makedirs(whisper, exist_ok=True)
        from django.core.management import call_command

        call_command("migrate", run_syncdb=True, verbosity=0)
