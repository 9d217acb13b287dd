"""The only place for packages that castore can do without: wgpu and rich.

Nothing below imports from here; devices are reached through the entry point group
`castore.devices`.
"""
