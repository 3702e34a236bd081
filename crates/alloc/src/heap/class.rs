//! Size classes: rounded sizes of small objects, and the length of their spans.
//!
//! Multiples of 16 bytes up to 128, from there eight classes per doubling: rounding adds at most 15
//! bytes or one ninth. A span is long enough that at most an eighth is left over at its end.

/// Alignment of every object, in bytes.
pub(super) const ALIGN: usize = 16;
/// Bytes of a unit, the granularity of spans.
pub(super) const UNIT: usize = 64 << 10;
/// Largest size with a class; larger objects have units of their own.
pub(super) const MAX_SMALL: usize = 512 << 10;
/// Number of classes.
pub(super) const CLASSES: usize = class_of(MAX_SMALL) + 1;

/// Largest size whose class is read from a table.
const MAX_IN_TABLE: usize = 1024;

static LOOKUP: [u8; MAX_IN_TABLE / ALIGN + 1] = {
    let (mut table, mut i) = ([0; MAX_IN_TABLE / ALIGN + 1], 0);
    while i < table.len() {
        #[allow(clippy::cast_possible_truncation)] // there are about a hundred
        (table[i] = class_of(i * ALIGN) as u8);
        i += 1;
    }
    table
};

static SIZES: [u32; CLASSES] = {
    let (mut table, mut class) = ([0; CLASSES], 0);
    while class < CLASSES {
        #[allow(clippy::cast_possible_truncation)] // at most MAX_SMALL
        (table[class] = computed_size(class) as u32);
        class += 1;
    }
    table
};

/// Returns the smallest class for `size` bytes, at most [`MAX_SMALL`].
#[inline]
pub(super) const fn class_of(size: usize) -> usize {
    if size <= 128 {
        return size.saturating_sub(1) / ALIGN;
    }
    let top = (size - 1).ilog2() as usize;
    8 + (top - 7) * 8 + ((size - 1) >> (top - 3)) - 8
}

/// Returns the smallest class for `size` bytes, faster for sizes known only at run time. `None`
/// above [`MAX_SMALL`].
#[inline]
pub(super) fn class_for(size: usize) -> Option<usize> {
    if size <= MAX_IN_TABLE {
        return Some(usize::from(LOOKUP[size.div_ceil(ALIGN)]));
    }
    (size <= MAX_SMALL).then(|| class_of(size))
}

/// Returns the smallest class whose objects lie at multiples of `align`, in a span that begins at a
/// multiple of [`UNIT`]. `None` if only units of its own fit.
pub(super) fn aligned_class(size: usize, align: usize) -> Option<usize> {
    let size = size.max(1).checked_next_multiple_of(align)?;
    if align > UNIT || size > MAX_SMALL {
        return None;
    }
    (class_of(size)..CLASSES).find(|&class| size_of_class(class).is_multiple_of(align))
}

/// Returns the object size of a class.
pub(super) fn size_of_class(class: usize) -> usize {
    SIZES[class] as usize
}

const fn computed_size(class: usize) -> usize {
    if class < 8 {
        return (class + 1) * ALIGN;
    }
    let (top, step) = (7 + (class - 8) / 8, 8 + (class - 8) % 8);
    (step + 1) << (top - 3)
}

/// Returns the units of a span of this class.
pub(super) fn units_of_class(class: usize) -> usize {
    let size = size_of_class(class);
    // Few objects per span mean that threads take spans often.
    let fewest = if size <= UNIT { 4 } else { 1 };
    let fits =
        |units: &usize| units * UNIT >= fewest * size && (units * UNIT % size) * 8 <= units * UNIT;
    (1..=MAX_SMALL / UNIT * 2).find(fits).unwrap_or(MAX_SMALL / UNIT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_has_the_smallest_class_that_holds_it() {
        for size in (0..=4096).chain((4096..=MAX_SMALL).step_by(61)).chain([MAX_SMALL]) {
            let class = class_of(size);
            assert_eq!(class_for(size), Some(class), "{size}");
            assert!(size_of_class(class) >= size, "{size}");
            assert!(class == 0 || size_of_class(class - 1) < size, "{size}");
        }
        assert_eq!([class_for(MAX_SMALL + 1), class_for(usize::MAX)], [None; 2]);
    }

    #[test]
    fn rounding_up_costs_fifteen_bytes_or_a_ninth() {
        for class in 1..CLASSES {
            let (size, least) = (size_of_class(class), size_of_class(class - 1) + 1);
            assert!(size - least <= 15 || (size - least) * 9 <= size, "{least} takes {size}");
            assert_eq!(size % ALIGN, 0);
        }
    }

    #[test]
    fn a_span_leaves_at_most_an_eighth_over() {
        for class in 0..CLASSES {
            let (size, len) = (size_of_class(class), units_of_class(class) * UNIT);
            assert!((len % size) * 8 <= len && len <= 2 * MAX_SMALL, "{size} in {len}");
        }
        assert!(
            (0..CLASSES)
                .filter(|&class| size_of_class(class) <= 8192)
                .all(|c| units_of_class(c) == 1)
        );
    }

    #[test]
    fn aligned_classes_keep_the_alignment() {
        for shift in 0..=17 {
            let align = 1_usize << shift;
            for size in [0, 1, 15, 100, 4096, 5000, 70_000, MAX_SMALL] {
                match aligned_class(size, align) {
                    Some(class) => {
                        assert!(
                            size_of_class(class) >= size
                                && size_of_class(class).is_multiple_of(align)
                        );
                    }
                    None => assert!(
                        align > UNIT || size.next_multiple_of(align) > MAX_SMALL,
                        "{size} at {align}"
                    ),
                }
            }
        }
    }
}
