/* SPDX-License-Identifier: Apache-2.0
 *
 * What C++ and assembler both need to know of the table of our own handles. */
#ifndef ROCENANTE_NCCL_SHIM_LIBNCCL_LAYOUT_H_
#define ROCENANTE_NCCL_SHIM_LIBNCCL_LAYOUT_H_

/* 65536 handles of 64 bytes in one range of addresses. */
#define RCN_NCCL_OWN_BYTES 0x400000

#endif /* ROCENANTE_NCCL_SHIM_LIBNCCL_LAYOUT_H_ */
