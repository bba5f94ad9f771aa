/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a forwarder lands that does not know its function yet, and where it lands when there is none. The
 * number of the function is in r11 (x86-64) or w17 (aarch64).
 *
 * Also the note by which a copy of this library is told from the real one before it is loaded. */
#if defined(__x86_64__)
.text

.hidden rcn_nccl_resolve_entry
.globl rcn_nccl_resolve_entry
.type rcn_nccl_resolve_entry, %function
.p2align 4
rcn_nccl_resolve_entry:
  .cfi_startproc
  endbr64
  /* All registers that may hold arguments. The stack is 8 off a multiple of 16 on entry. */
  subq $200, %rsp
  .cfi_adjust_cfa_offset 200
  movq %rdi, 0(%rsp)
  movq %rsi, 8(%rsp)
  movq %rdx, 16(%rsp)
  movq %rcx, 24(%rsp)
  movq %r8, 32(%rsp)
  movq %r9, 40(%rsp)
  movq %r11, 48(%rsp)
  movups %xmm0, 64(%rsp)
  movups %xmm1, 80(%rsp)
  movups %xmm2, 96(%rsp)
  movups %xmm3, 112(%rsp)
  movups %xmm4, 128(%rsp)
  movups %xmm5, 144(%rsp)
  movups %xmm6, 160(%rsp)
  movups %xmm7, 176(%rsp)
  movl %r11d, %edi
  call rcn_nccl_resolve
  movq 0(%rsp), %rdi
  movq 8(%rsp), %rsi
  movq 16(%rsp), %rdx
  movq 24(%rsp), %rcx
  movq 32(%rsp), %r8
  movq 40(%rsp), %r9
  movq 48(%rsp), %r11
  movups 64(%rsp), %xmm0
  movups 80(%rsp), %xmm1
  movups 96(%rsp), %xmm2
  movups 112(%rsp), %xmm3
  movups 128(%rsp), %xmm4
  movups 144(%rsp), %xmm5
  movups 160(%rsp), %xmm6
  movups 176(%rsp), %xmm7
  addq $200, %rsp
  .cfi_adjust_cfa_offset -200
  jmpq *%rax
  .cfi_endproc
.size rcn_nccl_resolve_entry, .-rcn_nccl_resolve_entry

/* Returns what rcn_nccl_missing says, and zeros in every other register that may hold a part of a value. */
.hidden rcn_nccl_missing_entry
.globl rcn_nccl_missing_entry
.type rcn_nccl_missing_entry, %function
.p2align 4
rcn_nccl_missing_entry:
  .cfi_startproc
  endbr64
  subq $8, %rsp
  .cfi_adjust_cfa_offset 8
  movl %r11d, %edi
  call rcn_nccl_missing
  addq $8, %rsp
  .cfi_adjust_cfa_offset -8
  xorl %edx, %edx
  xorps %xmm0, %xmm0
  xorps %xmm1, %xmm1
  ret
  .cfi_endproc
.size rcn_nccl_missing_entry, .-rcn_nccl_missing_entry

#elif defined(__aarch64__)
.text

.hidden rcn_nccl_resolve_entry
.globl rcn_nccl_resolve_entry
.type rcn_nccl_resolve_entry, %function
.p2align 4
rcn_nccl_resolve_entry:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-224]!
  .cfi_def_cfa_offset 224
  .cfi_offset x29, -224
  .cfi_offset x30, -216
  mov x29, sp
  stp x0, x1, [sp, #16]
  stp x2, x3, [sp, #32]
  stp x4, x5, [sp, #48]
  stp x6, x7, [sp, #64]
  stp x8, x17, [sp, #80]
  stp q0, q1, [sp, #96]
  stp q2, q3, [sp, #128]
  stp q4, q5, [sp, #160]
  stp q6, q7, [sp, #192]
  mov w0, w17
  bl rcn_nccl_resolve
  mov x16, x0
  ldp x0, x1, [sp, #16]
  ldp x2, x3, [sp, #32]
  ldp x4, x5, [sp, #48]
  ldp x6, x7, [sp, #64]
  ldp x8, x17, [sp, #80]
  ldp q0, q1, [sp, #96]
  ldp q2, q3, [sp, #128]
  ldp q4, q5, [sp, #160]
  ldp q6, q7, [sp, #192]
  ldp x29, x30, [sp], #224
  .cfi_restore x30
  .cfi_restore x29
  .cfi_def_cfa_offset 0
  br x16
  .cfi_endproc
.size rcn_nccl_resolve_entry, .-rcn_nccl_resolve_entry

.hidden rcn_nccl_missing_entry
.globl rcn_nccl_missing_entry
.type rcn_nccl_missing_entry, %function
.p2align 4
rcn_nccl_missing_entry:
  .cfi_startproc
  hint #34
  stp x29, x30, [sp, #-16]!
  .cfi_def_cfa_offset 16
  .cfi_offset x29, -16
  .cfi_offset x30, -8
  mov x29, sp
  mov w0, w17
  bl rcn_nccl_missing
  mov x1, #0
  movi v0.2d, #0
  movi v1.2d, #0
  ldp x29, x30, [sp], #16
  .cfi_restore x30
  .cfi_restore x29
  .cfi_def_cfa_offset 0
  ret
  .cfi_endproc
.size rcn_nccl_missing_entry, .-rcn_nccl_missing_entry
#endif

.section .note.rocenante, "a", %note
.p2align 2
.long 10, 0, 1
.asciz "RoCEnante"
.p2align 2

.section .note.GNU-stack, "", %progbits
