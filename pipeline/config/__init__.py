"""params.yaml composed of the rooms' settings, profiles, rules and the DVC graph; imports every room below."""
