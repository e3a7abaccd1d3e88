"""A record's pieces as small binary replies: one codec, one server, two carriers."""
