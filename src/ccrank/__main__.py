"""`python -m ccrank` is the command `ccrank`."""

from ccrank.cli import main

main()
