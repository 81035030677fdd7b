//! `cargo run -p doc-editor` tells the story; `-- serve` opens the editor; `-- --help` lists the rest.

fn main() -> std::process::ExitCode {
    walkthrough::main(doc_editor::archetype())
}
