/* Closes the scalar tier. */
#undef QK_ISA
