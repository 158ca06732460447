/* Closes the scalar tier. */
#undef QK_ISA
#undef QK_FOLDED
