"""How the core is compiled: jit, tables behind one pointer. It knows no State."""
