# shellcheck shell=bash
# Reserves huge pages of one size and mounts them. A smaller pool than requested would starve the data plane later.

huge_pages() {
  local pool=/sys/kernel/mm/hugepages/hugepages-$((PAGE_SIZE_MIB * 1024))kB/nr_hugepages
  local asked="$PAGE_COUNT pages of $PAGE_SIZE_MIB MiB" memory_mib
  local count=$ROOT$pool asked_mib=$((PAGE_COUNT * PAGE_SIZE_MIB))
  [[ -e $count ]] || fail "this kernel does not support pages of $PAGE_SIZE_MIB MiB"
  memory_mib=$(awk '$1 == "MemTotal:" {print int($2 / 1024)}' "$ROOT/proc/meminfo")
  ((asked_mib * 100 <= memory_mib * 80)) || fail "$asked are $asked_mib MiB, over 80 % of the host's $memory_mib MiB"

  if (($(<"$count") != PAGE_COUNT)); then
    # Memory is fragmented even minutes after boot; compact it before requesting blocks.
    set_kernel /proc/sys/vm/compact_memory 1
    set_kernel "$pool" "$PAGE_COUNT"
  fi
  (($(<"$count") == PAGE_COUNT)) ||
    fail "$asked were requested, but the kernel reserved $(<"$count"): reserve them on the kernel command line of the image"
  mkdir -p "$RUN/hugepages"
  mountpoint -q "$RUN/hugepages" || mount -t hugetlbfs -o "pagesize=${PAGE_SIZE_MIB}M" voice "$RUN/hugepages"
}
