"""Tests of the Relay passes against stock Relay."""
