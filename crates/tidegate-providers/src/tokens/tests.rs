//! Counts compared with those of another implementation, which also has the original vocabulary.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use proptest::prelude::*;
use proptest::string::string_regex;

use super::tokenizer::get_or_wait;
use super::{TokenCounter, count, count_chat, estimate, prepare};
use crate::chat::{Chat, Message, Tool};

/// The beginning of the Universal Declaration of Human Rights and other texts, in many scripts.
const TEXTS: [&str; 24] = [
    "Whereas recognition of the inherent dignity and of the equal and inalienable rights of all \
     members of the human family is the foundation of freedom, justice and peace in the world,",
    "Da die Anerkennung der angeborenen Würde und der gleichen und unveräußerlichen Rechte aller \
     Mitglieder der Gemeinschaft der Menschen die Grundlage von Freiheit, Gerechtigkeit und \
     Frieden in der Welt bildet,",
    "Considérant que la reconnaissance de la dignité inhérente à tous les membres de la famille \
     humaine et de leurs droits égaux et inaliénables constitue le fondement de la liberté,",
    "Considerando que la libertad, la justicia y la paz en el mundo tienen por base el \
     reconocimiento de la dignidad intrínseca",
    "Принимая во внимание, что признание достоинства, присущего всем членам человеческой семьи, \
     и равных и неотъемлемых прав их является основой свободы, справедливости и всеобщего мира;",
    "Επειδή η αναγνώριση της αξιοπρέπειας, που είναι σύμφυτη σε όλα τα μέλη της ανθρώπινης \
     οικογένειας, καθώς και των ίσων και αναπαλλοτρίωτων δικαιωμάτων τους",
    "鉴于对人类家庭所有成员的固有尊严及其平等的和不移的权利的承认，乃是世界自由、正义与和平的基础，",
    "人類社会のすべての構成員の固有の尊厳と平等で譲ることのできない権利とを承認することは、\
     世界における自由、正義及び平和の基礎であるので、",
    "모든 인류 구성원의 천부의 존엄성과 동등하고 양도할 수 없는 권리를 인정하는 것이 세계의 자유, \
     정의 및 평화의 기초이며,",
    "لما كان الاعتراف بالكرامة المتأصلة في جميع أعضاء الأسرة البشرية وبحقوقهم المتساوية الثابتة",
    "הואיל והכרה בכבוד הטבעי אשר לכל בני משפחת האדם ובזכויותיהם השוות והבלתי נפקעות",
    "चूंकि मानव परिवार के सभी सदस्यों के जन्मजात गौरव और समान तथा अविच्छिन्न अधिकार की स्वीकृति",
    "โดยที่การยอมรับศักดิ์ศรีแต่กำเนิด และสิทธิที่เท่าเทียมกันและที่ไม่อาจเพิกถอนได้ของสมาชิกทั้งมวล",
    "Xét rằng việc thừa nhận phẩm giá bẩm sinh và các quyền bình đẳng và bất khả nhượng",
    "მიიღებს რა მხედველობაში, რომ ადამიანთა ოჯახის ყველა წევრის ღირსების",
    "fn main() {\n    let n = (1..=10).map(|i| i * i).filter(|i| i % 2 == 0).sum::<u64>();\n\n\t\
     println!(\"{n:>8}\"); // prints 220\r\n}\r\n",
    r#"{"id": "call_8f3b2c", "values": [1.5e-3, 2048, null, true], "path": "C:\\tmp\\a.txt"}"#,
    "SELECT count(*) FROM orders AS o JOIN users u ON u.id=o.user_id WHERE o.total>=99.90;--x",
    "I'll say it's DON'T'VE they'Re we'd ſo 'S 'ſ 's'ſ",
    "👩🏽‍🚀🧑‍🤝‍🧑 🇩🇪 ½ Ⅷ ² ٣٤٥٦ ①② 1234567890123",
    "e\u{301}a\u{308}\u{323} \u{a0}\u{3000}x \u{2028}\u{85}\u{b}\u{c} \u{200b}\u{feff}",
    "   leading,  double   and trailing   \n\n \n  x \t\n\r\n  ",
    "<html><body class=\"a b\">///\n// --- ===\n*** https://example.org/a?b=c&d=%20#e</body></html>",
    "AaBbCcDD XMLHttpRequest snake_case_name SCREAMING_CASE kebab-case 0xDEADBEEF $12,345.67",
];

fn reference(text: &str) -> u64 {
    u64::try_from(bpe_openai::o200k_base().count(text)).expect("fewer tokens than u64::MAX")
}

/// Compares a text and all its beginnings and ends.
#[test]
fn texts_in_many_scripts_count_like_the_reference() {
    prepare();
    for text in TEXTS {
        for (at, _) in text.char_indices() {
            let (before, after) = text.split_at(at);
            for part in [before, after] {
                assert_eq!(count(part), reference(part), "{part:?}");
            }
        }
    }
}

/// A sequence of 64 KiB without a break must not take quadratic time.
#[test]
fn long_pieces_count_like_the_reference() {
    prepare();
    for pattern in ["a", "ab", "的", "=-", " ", "\n", "潮水退了"] {
        let text = pattern.repeat(64 * 1_024 / pattern.len());
        assert_eq!(count(&text), reference(&text), "{pattern:?}");
    }
    let mixed: String = TEXTS.concat().chars().filter(|it| it.is_alphabetic()).collect();
    assert_eq!(count(&mixed), reference(&mixed));
}

proptest! {
    #[test]
    fn random_texts_count_like_the_reference(text in texts()) {
        prepare();
        prop_assert_eq!(count(&text), reference(&text), "{:?}", text);
    }

    /// Merging a sequence of tokens may join them in other ways than they were written.
    #[test]
    fn random_tokens_count_like_the_reference(ranks in prop::collection::vec(0..199_998_u32, 1..40)) {
        let vocabulary = get_or_wait().vocabulary();
        let bytes: Vec<u8> = ranks.iter().flat_map(|rank| vocabulary.token(*rank)).copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        prepare();
        prop_assert_eq!(count(&text), reference(&text), "{:?}", text);
    }
}

/// Words, spaces, punctuation, contractions, and any characters at all.
fn texts() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        string_regex(r"[a-z]{1,12}").expect("a valid expression"),
        string_regex(r"[A-Z][a-zA-Z]{0,9}").expect("a valid expression"),
        string_regex(r"[ \t\r\n\u{a0}\u{2003}]{1,5}").expect("a valid expression"),
        string_regex(r"\p{L}{1,6}").expect("a valid expression"),
        string_regex(r"[\p{M}\p{N}\p{P}\p{S}]{1,6}").expect("a valid expression"),
        string_regex(r"['’](s|S|t|re|VE|ll|d|m|ſ)").expect("a valid expression"),
        any::<String>(),
    ];
    prop::collection::vec(piece, 0..20).prop_map(|pieces| pieces.concat())
}

#[test]
fn the_vocabulary_is_the_one_of_the_encoding() {
    let (ours, original) = (get_or_wait().vocabulary(), &bpe_openai::o200k_base().bpe);
    let count = u32::try_from(original.num_tokens()).unwrap();
    assert_eq!(ours.len(), count, "run `cargo xtask vocabulary`");
    for rank in 0..count {
        assert_eq!(ours.token(rank), original.token_bytes(rank), "run `cargo xtask vocabulary`");
    }
}

/// Prose, code and JSON, so that nothing is far off until the vocabulary is ready.
#[test]
fn estimates_are_near_the_count() {
    let (mut estimates, mut counts) = (0, 0);
    for text in &TEXTS[..18] {
        let (estimate, count) = (estimate::tokens(text), reference(text));
        let is_near = estimate * 3 >= count * 2 && estimate * 2 <= count * 3;
        assert!(is_near, "{estimate} for {count}: {text:?}");
        estimates += estimate;
        counts += count;
    }
    assert!(estimates.abs_diff(counts) * 20 <= counts, "{estimates} for {counts} in all");
    assert_eq!(estimate::tokens(""), 0);
    assert_eq!(estimate::tokens("."), 1);
}

#[test]
fn one_counter_counts_all_parts_of_a_chat() {
    prepare();
    let parameters = serde_json::json!({ "type": "object", "properties": { "city": {} } });
    let tool = Tool { name: "weather".into(), description: None, parameters };
    let chat =
        Chat::user(TEXTS[0]).system("be brief").message(Message::assistant("yes")).tool(tool);
    let exact = TokenCounter::current();
    assert!(!exact.is_provisional());
    assert_eq!(exact.count_chat(&chat), count_chat(&chat));
    let provisional = TokenCounter { tokenizer: None };
    assert!(provisional.is_provisional());
    assert_eq!(provisional.count("潮水"), estimate::tokens("潮水"));
    assert_ne!(provisional.count_chat(&chat), exact.count_chat(&chat));
}
