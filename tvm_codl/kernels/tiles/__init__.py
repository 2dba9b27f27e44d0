"""How kernels are cut into vectors, register tiles and strips, and which configuration a piece gets.  Imports no TVM."""
