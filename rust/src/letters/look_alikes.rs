//! Letters that few readers tell from Latin ones, from Unicode's confusables (UTS #39, Unicode 18).
//!
//! Only letters of the Latin, Greek, Cyrillic, Armenian, Cherokee, Lisu and Coptic scripts for which there is one
//! Latin letter, in the case in which they are written, and that NFKC leaves alone; beside these small capitals, and
//! letters in dark circles, in dark squares and of flags, which NFKC leaves alone too.
#![forbid(unsafe_code)]

use std::sync::LazyLock;

/// The Latin letter that `character` looks like; itself if it looks like none.
pub fn latin(character: char) -> char {
    if character.is_ascii() {
        return character;
    }
    SORTED.binary_search_by_key(&character, |pair| pair.0).map_or(character, |at| SORTED[at].1)
}

static SORTED: LazyLock<Vec<(char, char)>> = LazyLock::new(|| {
    let mut pairs: Vec<_> = LOOKING_LIKE.iter().flat_map(|(latin, all)| all.chars().map(|one| (one, *latin))).collect();
    pairs.sort_unstable();
    pairs
});

#[rustfmt::skip]
const LOOKING_LIKE: &[(char, &str)] = &[
    ('A', "\u{391}\u{410}\u{13AA}\u{A4EE}\u{1F150}\u{1F170}\u{1F1E6}"),
    ('B', "\u{392}\u{412}\u{13F4}\u{2C82}\u{A4D0}\u{A7B4}\u{1F151}\u{1F171}\u{1F1E7}"),
    ('C', "\u{421}\u{13DF}\u{2CA4}\u{A4DA}\u{1F152}\u{1F172}\u{1F1E8}"),
    ('D', "\u{13A0}\u{A4D3}\u{1F153}\u{1F173}\u{1F1E9}"),
    ('E', "\u{395}\u{415}\u{13AC}\u{A4F0}\u{1F154}\u{1F174}\u{1F1EA}"),
    ('F', "\u{3DC}\u{A4DD}\u{A798}\u{1F155}\u{1F175}\u{1F1EB}"),
    ('G', "\u{50C}\u{13C0}\u{13F3}\u{A4D6}\u{1F156}\u{1F176}\u{1F1EC}"),
    ('H', "\u{397}\u{41D}\u{13BB}\u{2C8E}\u{A4E7}\u{1F157}\u{1F177}\u{1F1ED}"),
    ('I', "\u{196}\u{399}\u{406}\u{4C0}\u{2C92}\u{A4F2}\u{A7AE}\u{1F158}\u{1F178}\u{1F1EE}"),
    ('J', "\u{37F}\u{408}\u{13AB}\u{A4D9}\u{A7B2}\u{1F159}\u{1F179}\u{1F1EF}"),
    ('K', "\u{39A}\u{41A}\u{13E6}\u{2C94}\u{A4D7}\u{1F15A}\u{1F17A}\u{1F1F0}"),
    ('L', "\u{13DE}\u{2CD0}\u{A4E1}\u{1F15B}\u{1F17B}\u{1F1F1}"),
    ('M', "\u{39C}\u{3FA}\u{41C}\u{13B7}\u{2C98}\u{A4DF}\u{1F15C}\u{1F17C}\u{1F1F2}"),
    ('N', "\u{39D}\u{2C9A}\u{A4E0}\u{1F15D}\u{1F17D}\u{1F1F3}"),
    ('O', "\u{39F}\u{41E}\u{555}\u{2C9E}\u{A4F3}\u{1F15E}\u{1F17E}\u{1F1F4}"),
    ('P', "\u{3A1}\u{420}\u{13E2}\u{2CA2}\u{2CCE}\u{A4D1}\u{1F15F}\u{1F17F}\u{1F1F5}"),
    ('Q', "\u{51A}\u{1F160}\u{1F180}\u{1F1F6}"),
    ('R', "\u{1A6}\u{24C}\u{13A1}\u{13D2}\u{A4E3}\u{1F161}\u{1F181}\u{1F1F7}"),
    ('S', "\u{405}\u{54F}\u{13D5}\u{13DA}\u{A4E2}\u{1F162}\u{1F182}\u{1F1F8}"),
    ('T', "\u{3A4}\u{422}\u{13A2}\u{2CA6}\u{A4D4}\u{1F163}\u{1F183}\u{1F1F9}"),
    ('U', "\u{54D}\u{A4F4}\u{1F164}\u{1F184}\u{1F1FA}"),
    ('V', "\u{474}\u{13D9}\u{A4E6}\u{1F165}\u{1F185}\u{1F1FB}"),
    ('W', "\u{51C}\u{13B3}\u{13D4}\u{A4EA}\u{1F166}\u{1F186}\u{1F1FC}"),
    ('X', "\u{3A7}\u{425}\u{2CAC}\u{A4EB}\u{A7B3}\u{1F167}\u{1F187}\u{1F1FD}"),
    ('Y', "\u{3A5}\u{423}\u{4AE}\u{13A9}\u{13BD}\u{2CA8}\u{A4EC}\u{1F168}\u{1F188}\u{1F1FE}"),
    ('Z', "\u{396}\u{13C3}\u{2C6B}\u{2C8C}\u{A4DC}\u{1F169}\u{1F189}\u{1F1FF}"),
    ('a', "\u{251}\u{3B1}\u{430}\u{1D00}\u{AB64}"),
    ('b', "\u{184}\u{299}\u{42C}\u{13CF}"),
    ('c', "\u{441}\u{1C83}\u{1D04}\u{2CA5}\u{ABAF}"),
    ('d', "\u{501}\u{13E7}\u{1D05}\u{A4D2}"),
    ('e', "\u{435}\u{4BD}\u{1D07}\u{AB32}"),
    ('f', "\u{192}\u{284}\u{584}\u{1E9D}\u{A730}\u{A799}\u{AB35}"),
    ('g', "\u{18D}\u{261}\u{262}\u{581}\u{1D83}"),
    ('h', "\u{29C}\u{4BA}\u{4BB}\u{570}\u{13C2}"),
    ('i', "\u{131}\u{269}\u{26A}\u{3B9}\u{456}\u{582}\u{13A5}\u{2C93}\u{A647}\u{AB75}"),
    ('j', "\u{237}\u{3F3}\u{458}\u{575}\u{1D0A}"),
    ('k', "\u{1D0B}"),
    ('l', "\u{1C0}\u{29F}\u{4CF}\u{A781}\u{A7FE}"),
    ('m', "\u{1D0D}"),
    ('n', "\u{274}\u{578}\u{57C}"),
    ('o', "\u{3BF}\u{3C3}\u{3ED}\u{43E}\u{585}\u{1C82}\u{1D0F}\u{1D11}\u{2C9F}\u{AB3D}"),
    ('p', "\u{FE}\u{1BF}\u{3C1}\u{3F8}\u{440}\u{1D18}\u{2CA3}\u{2CCF}"),
    ('q', "\u{51B}\u{563}\u{566}"),
    ('r', "\u{280}\u{433}\u{1D26}\u{2C85}\u{AB47}\u{AB48}\u{AB81}"),
    ('s', "\u{1BD}\u{455}\u{A731}\u{ABAA}"),
    ('t', "\u{1D1B}"),
    ('u', "\u{28B}\u{3C5}\u{57D}\u{1D1C}\u{A79F}\u{AB4E}\u{AB52}"),
    ('v', "\u{3BD}\u{475}\u{1D20}\u{ABA9}"),
    ('w', "\u{26F}\u{448}\u{461}\u{51D}\u{561}\u{1D21}\u{2CBD}\u{A7FA}\u{AB83}\u{ABA4}"),
    ('x', "\u{445}"),
    ('y', "\u{263}\u{28F}\u{3B3}\u{443}\u{4AF}\u{1D8C}\u{1EFF}\u{2CA9}\u{AB5A}"),
    ('z', "\u{1D22}\u{2C6C}\u{2C8D}\u{AB93}"),
];
