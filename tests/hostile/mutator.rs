//! Mutated bytes, the same in every run.
//!
//! Splices, repetitions, lost and inserted bytes, and the words that matter to an HTTP server. No coverage guides it: it
//! makes up for that in numbers.

/// What parsers stumble over, put in anywhere.
const WORDS: [&[u8]; 32] = [
    b"\r\n",
    b"\n",
    b"\r",
    b"\0",
    b"\r\n\r\n",
    b"0\r\n\r\n",
    b"ffffffffffffffff\r\n",
    b"10000000000000000",
    b"Transfer-Encoding: chunked\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"\r\n folded",
    b"GET /smuggled HTTP/1.1\r\n\r\n",
    b"Host: evil.example\r\n",
    b"http://evil.example/mcp",
    b"HTTP/1.0",
    b"Expect: 100-continue\r\n",
    b"Connection: close\r\n",
    b": ",
    b",",
    b";",
    b" ",
    b"\t",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"\"",
    b"\\ud800",
    b"[[[[[[[[",
    b"{\"jsonrpc\":\"2.0\",",
    b"\"id\":null,",
    b"1e999",
    b"-0",
];

pub(super) struct Mutator {
    seeds: Vec<Vec<u8>>,
    state: u64,
}

impl Mutator {
    pub(super) fn new(seeds: Vec<Vec<u8>>, seed: u64) -> Self {
        Mutator { seeds, state: seed }
    }

    /// The next input: a seed with one to six changes.
    pub(super) fn next(&mut self) -> Vec<u8> {
        let seed = self.below(self.seeds.len());
        let mut bytes = self.seeds[seed].clone();
        for _ in 0..=self.below(6) {
            self.change(&mut bytes);
        }
        bytes
    }

    fn change(&mut self, bytes: &mut Vec<u8>) {
        let at = self.below(bytes.len() + 1);
        let count = self.below(16).min(bytes.len() - at);
        match self.below(8) {
            0 if at < bytes.len() => bytes[at] ^= 1 << self.below(8),
            1 if at < bytes.len() => bytes[at] = self.random().to_le_bytes()[0],
            2 => drop(bytes.drain(at..at + count)),
            3 => {
                let again = bytes[at..at + count].to_vec();
                let times = 1 + self.below(3);
                bytes.splice(at..at, again.repeat(times));
            }
            4 | 5 => {
                let word = WORDS[self.below(WORDS.len())];
                bytes.splice(at..at, word.iter().copied());
            }
            6 => {
                let other = self.below(self.seeds.len());
                let start = self.below(self.seeds[other].len() + 1);
                let tail = self.seeds[other][start..].to_vec();
                bytes.splice(at.., tail);
            }
            _ => bytes.truncate(at),
        }
    }

    /// Below `end`, which is not 0.
    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.random() % end as u64).expect("below a usize")
    }

    /// SplitMix64.
    fn random(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes() {
    let seeds = vec![b"GET /mcp HTTP/1.1\r\n\r\n".to_vec(), b"POST".to_vec()];
    let inputs = |seed| {
        let mut mutator = Mutator::new(seeds.clone(), seed);
        (0..100).map(|_| mutator.next()).collect::<Vec<_>>()
    };
    assert_eq!(inputs(1), inputs(1));
    assert_ne!(inputs(1), inputs(2));
    assert!(inputs(1).iter().filter(|input| !seeds.contains(input)).count() > 80, "most inputs are mutants");
}
