"""The `castore` command: one thin module for each of its commands.

`main` finds the command, imports its module and no other, and turns every error
into one line and an exit status. A command's module has three parts: `HELP`,
`configure`, which adds its arguments, and `run`. What needs numpy, a device or a
terminal library is imported inside `run`, so that `castore ls` starts quickly.
"""
