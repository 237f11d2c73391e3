"""Jobs that are made to fail, at named points and at random."""
