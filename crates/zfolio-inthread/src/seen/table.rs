//! What each system call of x86-64 does with its arguments: which of them are pointers, and
//! to how much.
//!
//! A number that is not here is treated as unknown: a little behind every argument that could
//! be a pointer is kept.

/// Numbers that are looked up; the ones above are unknown.
pub(crate) const CALLS: usize = 512;

/// One pointer among a call's arguments, which are numbered from 0.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pointer {
    /// To so many bytes.
    Bytes(u8, u16),
    /// To as many bytes as another argument says, times a size.
    Array(u8, u8, u16),
    /// To a string.
    Text(u8),
    /// To an array of `struct iovec`, as many as another argument says.
    Vectors(u8, u8),
    /// To a `struct msghdr`.
    Message(u8),
    /// To an array of `struct mmsghdr`, as many as another argument says.
    Messages(u8, u8),
    /// To an array of `struct futex_waitv`, as many as another argument says.
    Words(u8, u8),
    /// To a mask of as many bits as another argument says.
    Bits(u8, u8),
    /// To a buffer whose length is behind another pointer, a word of 32 bits.
    Measured(u8, u8),
}

use Pointer::{Array, Bits, Bytes, Measured, Message, Messages, Text, Vectors, Words};

/// A call's number and its pointers.
type Row = (u16, &'static [Pointer]);

const TIME: u16 = 16;

/// Calls without pointers, which go straight to the kernel. (Not those that are made without a thread of ours:
/// `life::reclaimer`.)
#[rustfmt::skip]
const WITHOUT: &[u16] = &[
    8, 24, 34, 37, 39, 41, 48, 50, 62, 74, 75, 77, 81, 91, 93, 95, 102, 104, 107, 108, 109,
    110, 111, 112, 121, 124, 140, 145, 146, 147, 186, 187, 221, 226, 252, 255, 277, 284,
    285, 290, 291, 306, 434, 438,
];

#[rustfmt::skip]
const ROWS: &[Row] = &[
    (0, &[Array(1, 2, 1)]), (1, &[Array(1, 2, 1)]), (2, &[Text(0)]),
    (4, &[Text(0), Bytes(1, 144)]), (5, &[Bytes(1, 144)]), (6, &[Text(0), Bytes(1, 144)]),
    (7, &[Array(0, 1, 8)]), (13, &[Bytes(1, 32), Bytes(2, 32)]),
    (14, &[Bytes(1, 8), Bytes(2, 8)]), (17, &[Array(1, 2, 1)]),
    (18, &[Array(1, 2, 1)]), (19, &[Vectors(1, 2)]), (20, &[Vectors(1, 2)]), (21, &[Text(0)]),
    (22, &[Bytes(0, 8)]),
    (23, &[Bits(1, 0), Bits(2, 0), Bits(3, 0), Bytes(4, TIME)]),
    (27, &[]), (29, &[]), (30, &[]), (32, &[]), (31, &[Bytes(2, 256)]),
    (35, &[Bytes(0, TIME), Bytes(1, TIME)]), (36, &[Bytes(1, 32)]),
    (38, &[Bytes(1, 32), Bytes(2, 32)]), (40, &[Bytes(2, 8)]), (42, &[Array(1, 2, 1)]),
    (43, &[Measured(1, 2)]), (44, &[Array(1, 2, 1), Array(4, 5, 1)]),
    (45, &[Array(1, 2, 1), Measured(4, 5)]), (46, &[Message(1)]), (47, &[Message(1)]),
    (49, &[Array(1, 2, 1)]), (51, &[Measured(1, 2)]), (52, &[Measured(1, 2)]), (53, &[Bytes(3, 8)]),
    (61, &[Bytes(1, 4), Bytes(3, 144)]), (63, &[Bytes(0, 390)]),
    (64, &[]), (65, &[Array(1, 2, 6)]), (67, &[]), (68, &[]), (71, &[Bytes(2, 128)]), (72, &[Bytes(2, 32)]),
    (76, &[Text(0)]), (78, &[Array(1, 2, 1)]), (79, &[Array(0, 1, 1)]), (80, &[Text(0)]),
    (82, &[Text(0), Text(1)]), (83, &[Text(0)]), (84, &[Text(0)]), (85, &[Text(0)]),
    (86, &[Text(0), Text(1)]), (87, &[Text(0)]), (88, &[Text(0), Text(1)]),
    (89, &[Text(0), Array(1, 2, 1)]), (90, &[Text(0)]), (92, &[Text(0)]), (94, &[Text(0)]),
    (96, &[Bytes(0, 16), Bytes(1, 8)]), (97, &[Bytes(1, 16)]), (98, &[Bytes(1, 144)]),
    (99, &[Bytes(0, 112)]), (100, &[Bytes(0, 32)]), (103, &[Array(1, 2, 1)]),
    (105, &[]), (106, &[]), (113, &[]), (114, &[]), (117, &[]), (119, &[]), (122, &[]), (123, &[]), (141, &[]),
    (115, &[Array(1, 0, 4)]), (116, &[Array(1, 0, 4)]),
    (118, &[Bytes(0, 4), Bytes(1, 4), Bytes(2, 4)]), (120, &[Bytes(0, 4), Bytes(1, 4), Bytes(2, 4)]),
    (125, &[Bytes(0, 8), Bytes(1, 24)]), (126, &[Bytes(0, 8), Bytes(1, 24)]), (127, &[Array(0, 1, 1)]),
    (128, &[Bytes(0, 8), Bytes(1, 128), Bytes(2, TIME)]), (129, &[Bytes(2, 128)]), (130, &[Bytes(0, 8)]),
    (131, &[Bytes(0, 24), Bytes(1, 24)]), (132, &[Text(0), Bytes(1, 16)]), (133, &[Text(0)]),
    (137, &[Text(0), Bytes(1, 120)]), (138, &[Bytes(1, 120)]),
    (142, &[Bytes(1, 4)]), (143, &[Bytes(1, 4)]), (148, &[Bytes(1, TIME)]),
    (155, &[Text(0), Text(1)]), (160, &[Bytes(1, 16)]), (161, &[Text(0)]),
    (165, &[Text(0), Text(1), Text(2), Text(4)]), (166, &[Text(0)]),
    (170, &[Array(0, 1, 1)]), (171, &[Array(0, 1, 1)]),
    (188, &[Text(0), Text(1), Array(2, 3, 1)]), (189, &[Text(0), Text(1), Array(2, 3, 1)]),
    (190, &[Text(1), Array(2, 3, 1)]), (191, &[Text(0), Text(1), Array(2, 3, 1)]),
    (192, &[Text(0), Text(1), Array(2, 3, 1)]), (193, &[Text(1), Array(2, 3, 1)]),
    (194, &[Text(0), Array(1, 2, 1)]), (195, &[Text(0), Array(1, 2, 1)]), (196, &[Array(1, 2, 1)]),
    (197, &[Text(0), Text(1)]), (198, &[Text(0), Text(1)]), (199, &[Text(1)]), (201, &[Bytes(0, 8)]),
    (202, &[Bytes(0, 4), Bytes(3, TIME), Bytes(4, 4)]), (203, &[Array(2, 1, 1)]), (204, &[Array(2, 1, 1)]),
    (213, &[]), (217, &[Array(1, 2, 1)]), (220, &[Array(1, 2, 6), Bytes(3, TIME)]), (218, &[]), (222, &[Bytes(1, 64), Bytes(2, 4)]),
    (223, &[Bytes(2, 32), Bytes(3, 32)]), (224, &[Bytes(1, 32)]), (225, &[]),
    (227, &[Bytes(1, TIME)]), (228, &[Bytes(1, TIME)]), (229, &[Bytes(1, TIME)]),
    (230, &[Bytes(2, TIME), Bytes(3, TIME)]), (232, &[Array(1, 2, 12)]), (233, &[Bytes(3, 12)]),
    (235, &[Text(0), Bytes(1, 32)]), (237, &[Bits(3, 4)]), (238, &[Bits(1, 2)]), (239, &[Bytes(0, 4), Bits(1, 2)]),
    (256, &[Bits(2, 1), Bits(3, 1)]), (279, &[Array(2, 1, 8), Array(3, 1, 4), Array(4, 1, 4)]),
    (240, &[Text(0), Bytes(3, 64)]), (241, &[Text(0)]),
    (242, &[Array(1, 2, 1), Bytes(4, TIME)]), (243, &[Array(1, 2, 1), Bytes(3, 4), Bytes(4, TIME)]),
    (244, &[Bytes(1, 64)]), (245, &[Bytes(1, 64), Bytes(2, 64)]),
    (247, &[Bytes(2, 128), Bytes(4, 144)]), (248, &[Text(0), Text(1), Array(2, 3, 1)]),
    (249, &[Text(0), Text(1), Text(2)]), (253, &[]), (254, &[Text(1)]),
    (257, &[Text(1)]), (258, &[Text(1)]), (259, &[Text(1)]), (260, &[Text(1)]), (261, &[Text(1), Bytes(2, 32)]),
    (262, &[Text(1), Bytes(2, 144)]), (263, &[Text(1)]), (264, &[Text(1), Text(3)]), (265, &[Text(1), Text(3)]),
    (266, &[Text(0), Text(2)]), (267, &[Text(1), Array(2, 3, 1)]), (268, &[Text(1)]), (269, &[Text(1)]),
    (270, &[Bits(1, 0), Bits(2, 0), Bits(3, 0), Bytes(4, TIME), Bytes(5, 16)]),
    (271, &[Array(0, 1, 8), Bytes(2, TIME), Bytes(3, 8)]), (272, &[]),
    (275, &[Bytes(1, 8), Bytes(3, 8)]), (276, &[]), (280, &[Text(1), Bytes(2, 32)]),
    (281, &[Array(1, 2, 12), Bytes(4, 8)]), (282, &[Bytes(1, 8)]), (283, &[]),
    (286, &[Bytes(2, 32), Bytes(3, 32)]), (287, &[Bytes(1, 32)]), (288, &[Measured(1, 2)]),
    (289, &[Bytes(1, 8)]), (293, &[Bytes(0, 8)]), (294, &[]),
    (295, &[Vectors(1, 2)]), (296, &[Vectors(1, 2)]), (297, &[Bytes(3, 128)]),
    (299, &[Messages(1, 2), Bytes(4, TIME)]), (301, &[Text(4)]), (302, &[Bytes(2, 16), Bytes(3, 16)]),
    (303, &[Text(1), Bytes(2, 256), Bytes(3, 8)]), (305, &[Bytes(1, 208)]), (307, &[Messages(1, 2)]), (308, &[]),
    (309, &[Bytes(0, 4), Bytes(1, 4)]), (310, &[Vectors(1, 2), Array(3, 4, 16)]),
    (311, &[Vectors(1, 2), Array(3, 4, 16)]), (314, &[Bytes(1, 128)]), (315, &[Array(1, 2, 1)]),
    (316, &[Text(1), Text(3)]), (318, &[Array(0, 1, 1)]), (319, &[Text(0)]), (324, &[]), (326, &[Bytes(1, 8), Bytes(3, 8)]),
    (327, &[Vectors(1, 2)]), (328, &[Vectors(1, 2)]), (332, &[Text(1), Bytes(4, 256)]),
    (424, &[Bytes(2, 128)]), (428, &[Text(1)]), (429, &[Text(1), Text(3)]), (430, &[Text(0)]),
    (431, &[Text(2), Text(3), Array(3, 4, 1)]), (433, &[Text(1)]), (440, &[Vectors(1, 2)]),
    (442, &[Text(1), Array(3, 4, 1)]), (444, &[Array(0, 1, 1)]), (457, &[Bytes(0, 64), Array(1, 2, 1)]),
    (458, &[Bytes(0, 64), Array(1, 2, 8)]), (459, &[Measured(1, 2)]), (460, &[Array(1, 2, 1)]),
    (461, &[Measured(0, 1)]), (465, &[Text(1), Array(3, 4, 1)]), (466, &[Text(1), Text(3)]),
    (467, &[Text(1), Array(3, 4, 1)]), (437, &[Text(1), Array(2, 3, 1)]), (439, &[Text(1)]),
    (441, &[Array(1, 2, 12), Bytes(3, TIME), Bytes(4, 8)]), (449, &[Words(0, 1), Bytes(3, TIME)]),
    (452, &[Text(1)]), (454, &[Bytes(0, 4)]), (455, &[Bytes(0, 4), Bytes(4, TIME)]),
    (154, &[Array(1, 2, 1)]), (163, &[Text(0)]), (167, &[Text(0)]), (168, &[Text(0)]),
    (468, &[Text(1), Array(2, 3, 1)]), (469, &[Text(1), Array(2, 3, 1)]),
];

/// Arguments that we look at and of which the kernel takes the lower 32 bits alone: what is above
/// is whatever was in the register. By number, bits.
static NARROW: [u8; CALLS] = {
    const ROWS: &[(usize, u8)] = &[
        (0, 1),
        (1, 1),
        (3, 1),
        (13, 1),
        (14, 1),
        (16, 0b11),
        (17, 1),
        (18, 1),
        (19, 1),
        (20, 1),
        (28, 0b100),
        (30, 0b101),
        (32, 1),
        (33, 0b11),
        (54, 0b1_0111),
        (55, 0b111),
        (66, 0b111),
        (72, 0b11),
        (157, 1),
        (158, 1),
        (231, 1),
        (250, 1),
        (292, 0b111),
        (295, 1),
        (296, 1),
        (317, 0b11),
        (325, 0b100),
        (327, 1),
        (328, 1),
        (329, 0b1000),
        (436, 0b111),
        (440, 0b1_1001),
    ];
    let mut narrow = [0; CALLS];
    let mut at = 0;
    while at < ROWS.len() {
        narrow[ROWS[at].0] = ROWS[at].1;
        at += 1;
    }
    narrow
};

/// A call's arguments as the kernel takes them.
pub(crate) fn narrowed(number: usize, mut args: [usize; 6]) -> [usize; 6] {
    let narrow = NARROW.get(number).copied().unwrap_or(0);
    if narrow != 0 {
        for (at, arg) in args.iter_mut().enumerate() {
            if narrow & 1 << at != 0 {
                *arg &= 0xffff_ffff;
            }
        }
    }
    args
}

/// 1 for calls without pointers.
pub(crate) static PLAIN: [u8; CALLS] = {
    let mut plain = [0; CALLS];
    let mut at = 0;
    while at < WITHOUT.len() {
        plain[WITHOUT[at] as usize] = 1;
        at += 1;
    }
    plain
};

/// By number, a row's place in the table plus one; 0: none.
static PLACES: [u16; CALLS] = {
    let mut places = [0; CALLS];
    let mut at = 0;
    while at < ROWS.len() {
        #[allow(clippy::cast_possible_truncation, reason = "few rows")]
        let place = at as u16 + 1;
        places[ROWS[at].0 as usize] = place;
        at += 1;
    }
    places
};

/// The pointers of a call; `None` for one that is unknown.
pub(crate) fn pointers(number: usize) -> Option<&'static [Pointer]> {
    let place = *PLACES.get(number)?;
    let (_, pointers) = ROWS.get(usize::from(place).checked_sub(1)?)?;
    Some(pointers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_call_is_in_one_place() {
        for (at, (number, _)) in ROWS.iter().enumerate() {
            assert_eq!(
                usize::from(PLACES[*number as usize]),
                at + 1,
                "{number} is twice"
            );
            assert_eq!(PLAIN[*number as usize], 0, "{number} has pointers, or not");
        }
        assert!(pointers(0).is_some() && pointers(511).is_none() && pointers(9999).is_none());
    }
}
