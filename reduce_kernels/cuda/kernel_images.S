/* SPDX-License-Identifier: Apache-2.0 */
/* The compiled families of kernels, as cudaLibraryLoadData takes them. */

.macro image family
  .global rocenante_kernels_\family
  .hidden rocenante_kernels_\family
  .type rocenante_kernels_\family, %object
  .balign 16
rocenante_kernels_\family:
  .incbin "\family\().fatbin"
  .size rocenante_kernels_\family, . - rocenante_kernels_\family
.endm

  .section .rodata
  image float
  image half
  image fp8
  image integer
  image order

  .section .note.GNU-stack, "", %progbits
