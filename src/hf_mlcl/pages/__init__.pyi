from .explain import Explained as Explained, Split as Split, write_explain_page as write_explain_page
